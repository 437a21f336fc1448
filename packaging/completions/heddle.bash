# Completion of heddle's commands, options, the words that options expect and the keys of run.toml (after --set), for bash. It asks
# the program (`heddle --help`, `heddle COMMAND --help`, `heddle config --defaults`), so that it knows what the installed version has.

# The commands, or the options of a command, one a line: "--beam N" or "--align hard|soft".
_heddle_words() {
  if [ $# -eq 1 ]; then
    "$1" --help 2> /dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'
  else
    COLUMNS=110 "$1" "$2" --help 2> /dev/null | sed -nE 's/^ +(-[a-zA-Z] \[ )?(--[a-z0-9-]+)( \])?( ([^ (=]+))?.*/\2 \5/p'
  fi
}

# The keys of run.toml, one a line: "train.steps".
_heddle_keys() {
  "$1" config --defaults 2> /dev/null |
    awk '/^\[/ { section = substr($1, 2, index($1, "]") - 2) } /^[a-z_0-9]+ = / { print section "." $1 }'
}

_heddle() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options expected
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_heddle_words "$program") help" -- "$word")
    return
  fi
  options=$(_heddle_words "$program" "${COMP_WORDS[1]}")
  if [[ $word == --* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(cut -d ' ' -f 1 <<< "$options")" -- "$word")
    return
  fi
  if [[ $before == --set || $before == --explain ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_heddle_keys "$program")" -- "$word")
    if [ "$before" = --set ]; then
      COMPREPLY=("${COMPREPLY[@]/%/=}")
      compopt -o nospace 2> /dev/null || true
    fi
    return
  fi
  expected=$(awk -v option="$before" '$1 == option && $2 ~ /\|/ { gsub(/\|/, " ", $2); print $2 }' <<< "$options")
  if [ -n "$expected" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$expected" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2> /dev/null
  fi
}
complete -F _heddle heddle
