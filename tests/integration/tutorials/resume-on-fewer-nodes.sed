s/^heddle demo-data --out text/& --train 2000 --valid 50/
s/--vocab-size 256/--vocab-size 150/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^(en|de)coder_layers = 2/\1coder_layers = 1/
s/^steps = 100/steps = 40/
s/^validate_every = 50/validate_every = 20/
s/^every_steps = 25/every_steps = 10/
s/^warmup_steps = 25/warmup_steps = 10/
s/train.steps=110/train.steps=45/
s/"step":50,/"step":10,/
s/step-00000100/step-00000040/
