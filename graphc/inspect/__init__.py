"""Looking at programs: dumps, the profile table."""
