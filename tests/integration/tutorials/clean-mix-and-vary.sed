s/--train 6000 --valid 100 --test 100/--train 2400 --valid 20 --test 20/
s/1,2000p/1,1000p/
s/2001,/1001,/
s/--vocab-size 250/--vocab-size 200/
s/^(en|de)coder_layers = 2/\1coder_layers = 1/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^steps = 300/steps = 30/
s/^epochs = 3/epochs = 1/
s/^batch_tokens = 2048/batch_tokens = 1024/
s/^(validate_every|every_steps) = 100/\1 = 10/
s/^warmup_steps = 50/warmup_steps = 5/
s/--step 50/--step 5/
s/--step 250/--step 25/
# A model that has hardly been trained ends no translation.
s/^ *heddle evaluate --checkpoint [^ ]*/& --max-length 12/
