s/--train 10000/--train 2000 --valid 50/
s/--vocab-size 256/--vocab-size 150/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^(en|de)coder_layers = 2/\1coder_layers = 1/
s/^steps = 200/steps = 30/
s/^validate_every = 50/validate_every = 10/
s/^warmup_steps = 50/warmup_steps = 10/
