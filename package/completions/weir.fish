# SPDX-License-Identifier: Apache-2.0
# Completion of weir in fish. `weir complete` knows the commands, options, rules and jobs.
function __weir_complete
    set -l words (commandline -opc)
    command weir complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c weir -a '(__weir_complete)'
