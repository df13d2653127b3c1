"""Config, presets and checks of Fairness Pruning, shared by the catalogue and the engine."""
