# SPDX-License-Identifier: Apache-2.0
# Completion of weir in bash. `weir complete` knows the commands, options, rules and jobs.
_weir() {
  local word=${COMP_WORDS[COMP_CWORD]} line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$line")
  done < <(command weir complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$word" 2>/dev/null)
}
complete -o default -F _weir weir
