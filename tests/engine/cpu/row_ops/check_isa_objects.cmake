# Fails when an object compiled for one instruction set contains a weak symbol: the linker keeps one
# copy for the whole program, and that could be the one for a processor that is not there.
#   NM       the nm program
#   OBJECTS  object files, joined by |
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
set(n_checked 0)
foreach(object IN LISTS OBJECTS)
    if(NOT object MATCHES "_(avx2|avxvnni|avx512)\\.cpp\\.")
        continue()
    endif()
    execute_process(COMMAND "${NM}" "${object}" OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "${NM} cannot read ${object}")
    endif()
    if(symbols MATCHES "[^\n]* [WVu] [^\n]*")
        message(FATAL_ERROR "${object} shares an inline function: ${CMAKE_MATCH_0}")
    endif()
    math(EXPR n_checked "${n_checked} + 1")
endforeach()
if(n_checked LESS 5)
    message(FATAL_ERROR "expected at least 5 objects of one instruction set, found ${n_checked}")
endif()
message(STATUS "${n_checked} objects share nothing")
