s/train.steps=100/train.steps=10 --set train.batch_tokens=512 --set train.micro_batch_tokens=256/
s/train.validate_every=25/train.validate_every=5 --set train.validate_bleu=false/
s/checkpoint.every_steps=25/checkpoint.every_steps=5/
# A model that has hardly been trained ends no translation.
s/^heddle evaluate .*--source test.en/& --max-length 12 --beam 1/
