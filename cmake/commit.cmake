# cmake -DSOURCE=FOLDER -DOUT=FILE -P commit.cmake: writes the C source OUT, when it changes: the commit that the sources
# are of, with a "+" where they differ from it; nothing where they are not git's.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git describe --always --exclude=* --abbrev=7 --dirty=+ WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#include \"engine/base/version.h\"\n\nconst char engine_commit[] = \"${commit}\";\n")
