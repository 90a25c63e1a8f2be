"""Dependencies of endpoints: the store of rows, and the registrar of datasets."""

from typing import Annotated

from privest_service.datasets.registration import Registrar
from privest_service.datasets.store import Store
from privest_service.parts import running

StoreDep = Annotated[Store, running(Store)]
RegistrarDep = Annotated[Registrar, running(Registrar)]
