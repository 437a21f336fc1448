s/--train 4000 --valid 200 --test 200/--train 600 --valid 30 --test 20/
s/--vocab-size 200/--vocab-size 150/
s/^(en|de)coder_layers = 3/\1coder_layers = 2/
s/^d_model = 64/d_model = 32/
s/^d_ff = 256/d_ff = 64/
s/^steps = 200/steps = 10/
s/^batch_tokens = 2048/batch_tokens = 512/
s/^validate_every = 100/validate_every = 5/
s/^warmup_steps = 50/warmup_steps = 5/
s/(model.encoder_layers)=3/\1=2/
s/(model.d_model)=48/\1=24/
s/(model.d_ff)=192/\1=48/
s/^steps = 50/steps = 3/
# A model that has hardly been trained ends no translation.
s/^heddle translate --checkpoint runs\/teacher/& --max-length 12/
s/^heddle translate --checkpoint runs\/taught/& --max-length 12/
s/^heddle distill model.toml/& --beam 1/
s/^ *heddle evaluate --checkpoint [^ ]*/& --max-length 12/
