#!/usr/bin/env bash
# heddle clean: which lines it keeps, whatever the form of the text and the number of threads; what it writes beside them; mistakes.
source "$(dirname "${BASH_SOURCE[0]}")/common"

# A small corpus: the lines that are kept have a "+" in the third column.
cat > corpus.tsv << 'TSV'
The house is large.	Das Haus ist groß.	+
The house is large.	Das Haus ist groß.	duplicates
The house is large.	Das Haus ist sehr groß.	+
	Leer.	length
Page 210 of 340	Seite 120 von 430	numbers
Page 210 of 1,340	Seite 210 von 1.340	+
This was never translated	This was never translated	copies
Save %s as %s	%s als %s speichern	+
Save %s as %s	%s speichern	placeholders
See http://example.org/	Siehe dort	addresses
1234 5678 9.	1234 5678 9.	characters
Ãœbergröße	Übergröße	mojibake
Yes	Ja, so ist es, wenn man es nur lange genug und immer wieder anders betrachtet	ratio
no no no no no	nein nein nein nein nein	repeats
Good night	Gute Nacht	+
TSV
cut -f 1 corpus.tsv > all.en
cut -f 2 corpus.tsv > all.de
awk -F '\t' '$3 == "+"' corpus.tsv > expected.tsv
[ "$(wc -l < expected.tsv)" = 5 ] || fail "the corpus"

ends 0 "$HEDDLE" clean --source all.en --target all.de --out-source kept.en --out-target kept.de.gz --dropped dropped.tsv --report report
cmp kept.en <(cut -f 1 expected.tsv) && gzip -dc kept.de.gz | cmp - <(cut -f 2 expected.tsv) || fail "two texts"
cut -f 2 dropped.tsv | cmp - <(awk -F '\t' '$3 != "+" { print $3 }' corpus.tsv) || fail "the rules: $(cat dropped.tsv)"
cut -f 4,5 dropped.tsv | cmp - <(awk -F '\t' '$3 != "+"' corpus.tsv | cut -f 1,2) || fail "dropped lines: $(cat dropped.tsv)"
grep -q '^kept 5 of 15 lines (33.33 %)' log && grep -Eq '^ +copies +1 +6.67 %$' log || fail "the counts"
grep -q '^line 5: numbers of the source only: 210 340; of the target only: 120 430$' report || { cat report; fail "the report"; }

# The same from columns, from pipes, in several files and with threads.
gzip -k corpus.tsv
"$HEDDLE" clean -q --tsv corpus.tsv.gz --columns 1,2 | cmp - expected.tsv || fail "columns"
head -7 all.en > first.en; tail -n +8 all.en > second.en; head -7 all.de > first.de; tail -n +8 all.de > second.de
ends 0 "$HEDDLE" clean --source <(cat first.en) second.en --target first.de <(cat second.de) --out-source parts.en --out-target parts.de
cmp parts.en kept.en || fail "files and pipes"
for copy in $(seq 400 | tr 0-9 a-j); do sed "s/house/house$copy/; s/Good/Good$copy/" corpus.tsv; done > many.tsv
for threads in 1 2 5; do
  "$HEDDLE" clean --tsv many.tsv --columns 1,2 --threads $threads --out many.$threads --dropped dropped.$threads.gz --report report.$threads 2> counts.$threads
  cmp many.1 many.$threads && cmp counts.1 counts.$threads && cmp report.1 report.$threads || fail "$threads threads"
  cmp <(gzip -dc dropped.1.gz) <(gzip -dc dropped.$threads.gz) || fail "$threads threads: dropped lines"
done
[ "$(wc -l < many.1)" = 1202 ] || fail "$(wc -l < many.1) of many lines"
"$HEDDLE" clean -q --text all.en > kept.text
[ "$(wc -l < kept.text)" = 8 ] || { cat kept.text; fail "one text"; }

# Rules of a file.
ends 0 "$HEDDLE" clean --write-rules rules.toml
"$HEDDLE" clean --tsv corpus.tsv --columns 1,2 --rules rules.toml --out again.tsv 2> log
cmp again.tsv expected.tsv || fail "the rules that were written"
"$HEDDLE" clean --write-rules - | cmp - rules.toml || fail "rules on the standard output"
grep -q 'heddle: warning: rules.toml:[0-9:]*: \[long_words\] drops none of 15 pairs' log || fail "a rule that drops nothing"
printf '[overlap]\nsource = "test.en"\n[scores]\nforward = "forward"\nbackward = "backward"\nkeep = 0.5\n' > rules.toml
echo 'the HOUSE is large' > test.en
seq 15 | sed 's/^/-0./' > forward
cp forward backward
"$HEDDLE" clean -q --tsv corpus.tsv --columns 1,2 --rules rules.toml | cut -f 1 > scored.en 2> log
cmp scored.en <(sed -n '10,15p' all.en) || { cat scored.en; fail "scores and overlap"; }

# Invalid UTF-8 is dropped as what it is.
{ cat corpus.tsv; printf 'broken \xff\tkaputt \xff\tx\n'; } > broken.tsv
"$HEDDLE" clean -q --tsv broken.tsv --columns 1,2 --dropped dropped.tsv | cmp - expected.tsv || fail "invalid UTF-8"
tail -1 dropped.tsv | grep -q '^16.mojibake.the source has U+FFFD' || fail "invalid UTF-8: $(tail -1 dropped.tsv)"
expect 65 'broken.tsv: line 16: byte 8 (0xFF) is not valid UTF-8' "$HEDDLE" clean --tsv broken.tsv --columns 1,2 --invalid-utf8 fail

# prepare --clean leaves out the same lines.
"$HEDDLE" clean -q --source all.en --target all.de --out-source kept.en --out-target kept.de --dropped dropped.tsv
printf '[%s]\n' length ratio mojibake characters repeats copies numbers addresses placeholders duplicates > rules.toml
ends 0 "$HEDDLE" prepare --source all.en --target all.de --vocab-size 60 --out data --clean rules.toml --dropped left_out.tsv
cmp dropped.tsv left_out.tsv && grep -q '^kept 5 of 15 lines' log && grep -q '^train: 5 pairs' log || fail "prepare --clean"
ends 0 "$HEDDLE" prepare --source kept.en --target kept.de --vocab-size 60 --out kept
cmp data/train.h5 kept/train.h5 && cmp data/vocab.model kept/vocab.model || fail "prepare --clean makes other files than of the kept lines"

# Mistakes; none leaves a file.
rm -f kept.en kept.de && mkdir before && cp -r ./*.* before
expect 64 'expected the text: --source and --target, --tsv, or --text' "$HEDDLE" clean
expect 64 'expected --out-source and --out-target' "$HEDDLE" clean --source all.en --target all.de
expect 64 '2 files for --source and 1 file for --target' "$HEDDLE" clean --source all.en all.en --target all.de --out-source a --out-target b
expect 64 'are for --source and --target; expected --out' "$HEDDLE" clean --tsv corpus.tsv --out-source a --out-target b
expect 64 'columns of --tsv, which is not given' "$HEDDLE" clean --text all.en --columns 1,2
expect 64 'expected two numbers' "$HEDDLE" clean --tsv corpus.tsv --columns 1
expect 64 'expected two different columns, counted from 1' "$HEDDLE" clean --tsv corpus.tsv --columns 0,1
expect 64 'the output all.en is the text that is read' "$HEDDLE" clean --text all.en --out all.en
expect 64 'the output all.de is the text that is read' "$HEDDLE" prepare --source all.en --target all.de --clean rules.toml \
  --dropped all.de --out new
expect 64 'two outputs are out' "$HEDDLE" clean --text all.en --out out --dropped out
expect 64 'there is a file, which is not replaced' "$HEDDLE" clean --write-rules rules.toml
expect 65 'corpus.tsv: line 1 has 3 columns; expected SOURCE<TAB>TARGET' "$HEDDLE" clean --tsv corpus.tsv --out out
expect 65 'corpus.tsv: line 1 has 3 columns; expected at least 4' "$HEDDLE" clean --tsv corpus.tsv --columns 1,4 --out out
expect 65 'first.de ends after line 7, but all.en has more' "$HEDDLE" clean --source all.en --target first.de --out-source a --out-target b
expect 65 'nowhere: does not exist' "$HEDDLE" clean --text nowhere --out out
expect 78 'rules nowhere.toml: does not exist' "$HEDDLE" clean --text all.en --rules nowhere.toml --out out
printf '[lenght]\n' > bad.toml
expect 78 'bad.toml:1:2: there is no rule lenght; did you mean length?' "$HEDDLE" clean --text all.en --rules bad.toml --out out
printf '[length]\nmin_words = 90\n' > bad.toml
expect 65 'bad.toml:1:2: \[length\] drops 15 of 15 lines, and nothing is left; line 1: the text has 4 words; min_words = 90' \
  "$HEDDLE" clean --text all.en --rules bad.toml --out out --dropped out.dropped
rm bad.toml && diff -r <(cd before && ls) <(ls ./*.* | sed 's|^./||') || fail "a mistake left a file"
