"""Private statistical estimation on manifolds: no HTTP, no SQL, no files.

Three ideas: plan from public facts, then run; one gate holds the rows; one currency counts the privacy.
Adjacency everywhere: replace one record, with the number of records public.
"""
