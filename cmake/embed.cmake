# Writes OUT, a C file that holds the text of every file of FILES (separated by commas) in rows of {name, text}:
#   const struct TYPE ARRAY[]; const int ARRAY_count;      of HEADER
# A row's name is the file's without its ending; with BASE, its path from there.
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  if(BASE)
    file(RELATIVE_PATH name ${BASE} ${file})
  endif()
  string(MAKE_C_IDENTIFIER ${name} symbol)
  file(READ ${file} text HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${text}")
  string(REPLACE "\\x0a" "\\x0a\"\n    \"" text "${text}")
  string(APPEND arrays "static const char text_${symbol}[] =\n    \"${text}\";\n")
  string(APPEND rows "    {\"${name}\", text_${symbol}},\n")
endforeach()
file(WRITE ${OUT} "/* Generated from files of the source tree. */
#include \"${HEADER}\"

${arrays}
const struct ${TYPE} ${ARRAY}[] = {
${rows}    {0},
};
const int ${ARRAY}_count = sizeof ${ARRAY} / sizeof *${ARRAY} - 1;
")
