"""What a plan is: its steps, the bytes they touch, its text, its loops written out."""
