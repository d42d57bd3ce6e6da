# Writes OUT, a C file that holds the text of every file of FILES (separated by commas) for zoo_texts.h.
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  string(MAKE_C_IDENTIFIER ${name} symbol)
  file(READ ${file} text HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${text}")
  string(REPLACE "\\x0a" "\\x0a\"\n    \"" text "${text}")
  string(APPEND arrays "static const char text_${symbol}[] =\n    \"${text}\";\n")
  string(APPEND rows "    {\"${name}\", text_${symbol}},\n")
endforeach()
file(WRITE ${OUT} "/* Generated from configs/models. */
#include \"engine/model/zoo_texts.h\"

${arrays}
const struct zoo_model zoo_texts[] = {
${rows}    {0},
};
const int zoo_texts_count = sizeof zoo_texts / sizeof *zoo_texts - 1;
")
