_engine() {
    local line=${COMP_LINE:0:COMP_POINT} words cur before options parts values key
    read -ra words <<< "$line"
    [[ $line == *' ' ]] && words+=('')
    local last=$((${#words[@]} - 1))
    cur=${words[last]} before=${words[last-1]}
    COMPREPLY=()
    if ((last <= 1)); then
        COMPREPLY=($(compgen -W "$_engine_commands" -- "$cur"))
        return
    fi
    _engine_command "${words[1]}"
    if [[ $cur == *=* ]]; then
        key=${cur%%=*}
        _engine_option "${words[1]}" "$key"
        [[ $values ]] || _engine_values "${key#--}"
        COMPREPLY=($(compgen -W "$values" -- "${cur#*=}"))
        [[ $values && $cur != */* ]] || COMPREPLY=($(compgen -f -- "${cur#*=}"))
    elif [[ $before == --set ]]; then
        COMPREPLY=($(compgen -W "$_engine_keys" -S = -- "$cur"))
        compopt -o nospace 2> /dev/null
    elif _engine_option "${words[1]}" "$before"; [[ $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$cur"))
        [[ $cur == */* ]] && COMPREPLY=($(compgen -f -- "$cur"))
        # bash takes what stands behind a colon for the word
        [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${cur%:*}:"}")
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    else
        [[ ${words[1]} == help ]] && parts="$parts config $_engine_keys"
        ((last == 2)) && COMPREPLY=($(compgen -W "$parts" -- "$cur"))
        ((${#COMPREPLY[@]})) || COMPREPLY=($(compgen -f -- "$cur"))
        compopt -o filenames 2> /dev/null
    fi
}
complete -F _engine engine
