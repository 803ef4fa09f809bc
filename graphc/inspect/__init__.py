"""Looking at programs: explanations, the profile table, memory, dumps."""
