s/4001,12000p/4001,4200p/
s/--train 12000 --valid 200 --test 200/--train 4200 --valid 30 --test 20/
s/--vocab-size 200/--vocab-size 150/
s/^(en|de)coder_layers = 2/\1coder_layers = 1/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^steps = 200/steps = 10/
s/^batch_tokens = 2048/batch_tokens = 512/
s/^validate_every = 100/validate_every = 5/
s/^warmup_steps = 50/warmup_steps = 5/
# A model that has hardly been trained ends no translation.
s/^ *heddle evaluate --checkpoint [^ ]*/& --max-length 12 --beam 1/
s/^heddle translate --checkpoint [^ ]*/& --max-length 12/
