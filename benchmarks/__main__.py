"""All benchmarks, one after another."""

from benchmarks import frechet_mean

frechet_mean.main()
