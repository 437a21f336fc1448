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

# _heddle_keys PROGRAM WORD: the keys of run.toml, one a line: "train.steps"; "data.valid_sets." where any name may follow. The options
# of update rules are asked for only where WORD may begin one.
_heddle_keys() {
  "$1" config --defaults 2> /dev/null |
    awk '/^\[/ { section = substr($1, 2, index($1, "]") - 2) } /^\[.*: NAME = / { print section "." } /^[a-z_0-9]+ = / { print section "." $1 }'
  if [[ $2 == optimizer.* ]]; then
    "$1" kernels 2> /dev/null | awk '/^[^ ]/ { rules = /^(Update rules|Schedules)/ } rules && /^        [a-z]/ { print "optimizer." $1 }' | sort -u
  fi
}

_heddle() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options expected
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_heddle_words "$program") help" -- "$word")
    return
  fi
  if [ "$COMP_CWORD" -eq 2 ] && [[ $word != -* ]]; then
    # `help COMMAND`, and the actions of a command, such as `checkpoint list|verify|prune|diff`.
    if [ "${COMP_WORDS[1]}" = help ]; then
      expected=$(_heddle_words "$program")
    else
      expected=$("$program" "${COMP_WORDS[1]}" --help 2> /dev/null | sed -nE 's/^  ([a-z]+(\|[a-z]+)+) .*/\1/p' | tr '|' ' ')
    fi
    if [ -n "$expected" ]; then
      mapfile -t COMPREPLY < <(compgen -W "$expected" -- "$word")
      return
    fi
  fi
  options=$(_heddle_words "$program" "${COMP_WORDS[1]}")
  if [[ $word == --* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(cut -d ' ' -f 1 <<< "$options")" -- "$word")
    return
  fi
  if [[ $before == --set || $before == --explain ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_heddle_keys "$program" "$word")" -- "$word")
    if [ "$before" = --set ]; then
      COMPREPLY=("${COMPREPLY[@]/%/=}")
      COMPREPLY=("${COMPREPLY[@]/%.=/.}")
      compopt -o nospace 2> /dev/null || true
    else
      COMPREPLY=("${COMPREPLY[@]/%./}")
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
