_engine() {
    local options parts values before=${words[CURRENT-1]} cur=${words[CURRENT]}
    if ((CURRENT == 2)); then
        compadd -- ${=_engine_commands}
        return
    fi
    _engine_command $words[2]
    if [[ $cur == *=* ]]; then
        _engine_option $words[2] ${cur%%=*}
        [[ -n $values ]] || _engine_values ${${cur%%=*}#--}
        compset -P '*='
        compadd -- ${=values}
        [[ -n $values && $cur != */* ]] || _files
    elif [[ $before == --set ]]; then
        compadd -S = -- ${=_engine_keys}
    elif _engine_option $words[2] $before; [[ -n $values ]]; then
        compadd -- ${=values}
        [[ $cur == */* ]] && _files
    elif [[ $cur == -* ]]; then
        compadd -- ${=options}
    else
        [[ $words[2] == help ]] && parts="$parts config $_engine_keys"
        ((CURRENT == 3)) && compadd -- ${=parts}
        _files
    fi
}
if [[ $funcstack[1] == _engine ]]; then
    _engine "$@"
else
    compdef _engine engine
fi
