"""All benchmarks, one after another; those of Figure 2 and 3 write to docs/reproductions.md."""

from benchmarks import exact_mean, figure2, figure3, frechet_mean, planning, private_steps, tangent_sampling

for benchmark in (frechet_mean, planning, tangent_sampling, private_steps, exact_mean, figure2, figure3):
    benchmark.main()
