#!/usr/bin/env bash
# The tables of variants in docs/reference/kernels.md are what bench_variants prints, except for times.
# Rounding errors differ between processors: they are compared by their size. Then choices of kernels.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$HEDDLE_SOURCE/docs/reference/kernels.md

fail() { echo "FAILED: $*"; exit 1; }
# rows FILE: the rows of all its tables of variants, without their heads.
rows() { sed -n '/^| variant /,/^$/p' "$1" | grep -v -e '^| variant ' -e '^| --- ' -e '^$' -e '^- '; }

"$HEDDLE_VARIANTS" > "$work/all"
rows "$work/all" > "$work/printed"
rows "$page" > "$work/documented"

# Names and layouts as they are, errors as the exponents of the next power of ten.
columns() {
  awk -F '|' '{
    line = $2
    for (i = 5; i <= 10; ++i) line = line "|" $i
    print line
  }' "$1"
}
exponents() { awk -F '|' '{ print $2 "|" int(log($3 + 0) / log(10) - 0.5) "|" int(log($4 + 0) / log(10) - 0.5) }' "$1"; }

[ "$(grep -c '^| variant ' "$work/all")" -eq 3 ] || fail "bench_variants did not print three tables"
[ "$(wc -l < "$work/printed")" -gt 60 ] || fail "bench_variants printed few rows"
diff <(columns "$work/documented") <(columns "$work/printed") ||
  fail "the tables in docs/reference/kernels.md are out of date: bench_variants --time"
paste -d '|' <(exponents "$work/documented") <(exponents "$work/printed") | awk -F '|' '
  function far(a, b) { return a - b > 1 || b - a > 1 }
  far($2, $5) || far($3, $6) { print "FAILED: the errors of" $1 "are of another size than those documented"; wrong = 1 }
  END { exit wrong }'

# A choice of kernels is measured: other rounding errors, and no errors where the kernel does not support the variant.
# The one that runs here without a choice changes nothing: kokkos, or simd where the processor has AVX-512.
changed=0
for choice in kokkos reference; do
  "$HEDDLE_VARIANTS" --decoder --kernel attention=$choice > "$work/chosen"
  rows "$work/chosen" > "$work/chosen_rows"
  head -n "$(wc -l < "$work/chosen_rows")" "$work/printed" > "$work/auto_rows"
  [ "$(wc -l < "$work/chosen_rows")" -gt 10 ] && diff <(columns "$work/chosen_rows") <(columns "$work/auto_rows") ||
    fail "a choice of kernels changes the rows"
  diff "$work/chosen_rows" "$work/auto_rows" > /dev/null || changed=1
done
[ "$changed" -eq 1 ] || fail "neither kokkos nor reference as kernels.attention changes an error"
left_out=
if "$HEDDLE" kernels 2> /dev/null | sed -n '/^ *residual_norm$/,/^ *activation$/p' | grep ' simd ' > /dev/null; then
  "$HEDDLE_VARIANTS" --kernel residual_norm=simd > "$work/chosen"
  grep -q '^| norm: RMSNorm | - | - | yes ' "$work/chosen" || fail "a kernel that refuses a variant has errors"
  grep -q "^- norm: RMSNorm: .*kernels.residual_norm = 'simd' does not support" "$work/chosen" ||
    fail "no note gives the reason of a refusal"
else
  left_out="; without AVX-512 there is no kernel that refuses a variant: that was LEFT OUT"
fi

echo "variants: $(wc -l < "$work/printed") rows$left_out"
