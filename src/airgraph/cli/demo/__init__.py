"""`airgraph generate`: a language model that decodes with captured steps, to see and to measure."""
