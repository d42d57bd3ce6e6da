# bash completion of engine; made by 'engine help --completion bash'
_engine() {
    local line=${COMP_LINE:0:COMP_POINT} words value
    read -ra words <<< "$line"
    [[ $line == *' ' ]] && words+=('')
    value=${words[-1]##*=}
    mapfile -t COMPREPLY < <("${words[0]/#\~/$HOME}" complete -- "${words[@]:1}" 2> /dev/null)
    if ((!${#COMPREPLY[@]})); then
        mapfile -t COMPREPLY < <(compgen -f -- "$value")
        compopt -o filenames 2> /dev/null
    elif [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2> /dev/null
    fi
    # bash takes what stands after a colon for the word
    [[ $value == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${value%:*}:"}")
}
complete -F _engine engine
