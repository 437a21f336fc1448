s/--train 20000/--train 2000 --valid 50/
