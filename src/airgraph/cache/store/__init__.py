"""Where cached graphs are kept, and by what they are told apart."""
