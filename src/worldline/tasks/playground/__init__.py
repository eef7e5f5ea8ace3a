"""The tasks of MuJoCo Playground (Zakka et al. 2025): robots of the Menagerie."""
