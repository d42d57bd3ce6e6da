# fish completion of engine; made by 'engine help --completion fish'
function _engine_complete
    set -l begun (commandline -ct)
    set -l words (commandline -opc) "$begun"
    set -l before (string match -r '^.*=' -- "$begun")
    for word in (command $words[1] complete -- $words[2..] 2> /dev/null)
        echo "$before$word"
    end
end
complete -c engine -a '(_engine_complete)'
