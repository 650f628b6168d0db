"""FX passes between lowering and capture: one file a pass, ordered in `pipeline`. They know no device."""
