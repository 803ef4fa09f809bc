"""What passes are written with: substitution, names, measures that fall, bodies, the runner."""
