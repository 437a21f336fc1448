s/--train 20000 --valid 100 --test 100/--train 1500 --valid 30 --test 20/
s/--vocab-size 256/--vocab-size 200/
s/^(en|de)coder_layers = 2/\1coder_layers = 1/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^batch_tokens = 2048/batch_tokens = 512/
s/^(validate_every|every_steps) = 100/\1 = 10/
s/^warmup_steps = 50/warmup_steps = 5/
s/train.steps=(300|200)/train.steps=10/
# A model that has hardly been trained ends no translation.
s/^heddle evaluate --checkpoint [^ ]*/& --max-length 12 --beam 1/
s/heddle generate --checkpoint [^ ]*/& --max-length 12/
