#!/usr/bin/env bash
# The table of attention variants in docs/kernels-and-plugins.md is what `heddle kernels --variants` prints, but for its
# times. Rounding errors differ between processors: they are compared by their size.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$HEDDLE_SOURCE/docs/kernels-and-plugins.md

"$HEDDLE" kernels --variants > "$work/printed"
sed -n '/^| variant /,/^$/p' "$page" | sed '/^$/d' > "$work/documented"

# Names and layouts as they are, errors as the exponents of the next power of ten.
columns() {
  awk -F '|' 'NR > 2 {
    line = $2
    for (i = 5; i <= 10; ++i) line = line "|" $i
    print line
  }' "$1"
}
exponents() { awk -F '|' 'NR > 2 { print $2 "|" int(log($3 + 0) / log(10) - 0.5) "|" int(log($4 + 0) / log(10) - 0.5) }' "$1"; }

[ "$(wc -l < "$work/printed")" -gt 10 ] || { echo "FAILED: heddle kernels --variants printed no table"; exit 1; }
diff <(columns "$work/documented") <(columns "$work/printed") ||
  { echo "FAILED: the table in docs/kernels-and-plugins.md is out of date: heddle kernels --variants --time"; exit 1; }
paste -d '|' <(exponents "$work/documented") <(exponents "$work/printed") | awk -F '|' '
  function far(a, b) { return a - b > 1 || b - a > 1 }
  far($2, $5) || far($3, $6) { print "FAILED: the errors of" $1 "are of another size than those documented"; wrong = 1 }
  END { exit wrong }'
echo "variants: $(($(wc -l < "$work/printed") - 2)) rows"
