-- One row for each column. `half_width` is half the interval of 95 %: show it beside every number.
select
    item,
    value,
    low,
    high,
    (high - low) / 2 as half_width,
    epsilon,
    receipt,
    published_at
from {{ source('privest', 'v_published') }}
where name = 'patients' and measure in ('mean', 'share') and unit is null
