# How every target of the project is declared, so that flags stand in one place.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

# The arithmetic contract: a plain a*b+c is two roundings everywhere (docs/arithmetic.md 0).
add_compile_options(-ffp-contract=off)

if(TERRACE_SANITIZE)
    # Enough to read a report; full optimisation of instrumented kernels takes minutes a file.
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
    add_compile_options(-fsanitize=${TERRACE_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${TERRACE_SANITIZE})
endif()

# Fuzzing is blind to code that was compiled without coverage: the libraries need it, not only the targets.
if(TERRACE_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()

function(terrace_warnings target)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
                           -Wno-sign-conversion)
    if(TERRACE_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()

# terrace_library(NAME SOURCES ... LINKS ... [PRIVATE_LINKS ...])
# Includes are written from the root of the tree: #include "engine/device/result.h".
function(terrace_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} PRIVATE ${CMAKE_BINARY_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
    terrace_warnings(${name})
endfunction()

# terrace_test(NAME SOURCES ... LINKS ... [LABELS ...] [TIMEOUT s])
# A GoogleTest binary; each test is one ctest entry named NAME.Suite.Sentence. Everything below
# tests/engine has the label "engine" too.
function(terrace_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
    target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name} PRIVATE
        TERRACE_ORACLE_DIR="${TERRACE_ORACLE_DIR}"
        TERRACE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    terrace_warnings(${name})
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/engine/")
        list(APPEND ARG_LABELS engine)
        list(REMOVE_DUPLICATES ARG_LABELS)
    endif()
    if("threads" IN_LIST ARG_LABELS)
        add_dependencies(tests_with_threads ${name})
    endif()
    # A list has to survive two readings: by discovery, and by the file it writes.
    string(REPLACE ";" "\\;" ARG_LABELS "${ARG_LABELS}")
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                         PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
