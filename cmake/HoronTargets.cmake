# One folder = one library = one line in the dependency table.
# horon_library(comm SRCS ... DEPS base device net LIBS <outside libraries> TESTS a_test.cc ... OPENS gloo)
# INTERNAL: of our programs alone, not installed.

# -Wno-restrict: GCC 12 warns of overlaps that cannot be when a literal is put before a std::string.
set(HORON_WARNINGS -Wall -Wextra -Wshadow -Wno-restrict)
if(HORON_WERROR)
  list(APPEND HORON_WARNINGS -Werror)
endif()

# Options that every target of ours gets: warnings, no contraction of a*b+c (it changes bits), sanitizers.
add_library(horon_options INTERFACE)
target_compile_options(horon_options INTERFACE ${HORON_WARNINGS} -ffp-contract=off -fno-fast-math
  -fvisibility=hidden -fvisibility-inlines-hidden -fstack-protector-strong)
# -Wno-maybe-uninitialized: with sanitizers GCC 12 warns of std::regex's own members.
if(HORON_SANITIZE)
  target_compile_options(horon_options INTERFACE -Wno-maybe-uninitialized -fsanitize=${HORON_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(horon_options INTERFACE -fsanitize=${HORON_SANITIZE})
else()
  target_compile_definitions(horon_options INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
  target_link_options(horon_options INTERFACE -Wl,-z,relro,-z,now)
endif()

function(horon_library name)
  cmake_parse_arguments(arg "INTERNAL" "" "SRCS;DEPS;LIBS;TESTS;OPENS" ${ARGN})
  add_library(horon_${name} STATIC ${arg_SRCS})
  add_library(horon::${name} ALIAS horon_${name})
  set_target_properties(horon_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(horon_${name} PUBLIC cxx_std_20)
  target_include_directories(horon_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(horon_${name} PRIVATE $<BUILD_INTERFACE:horon_options>)
  list(TRANSFORM arg_DEPS PREPEND horon_)
  target_link_libraries(horon_${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_LIBS})
  if(NOT arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY HORON_LIBRARIES horon_${name})
  endif()
  if(HORON_BUILD_TESTS AND arg_TESTS)
    horon_test(${name}_test SRCS ${arg_TESTS} DEPS ${name} OPENS ${arg_OPENS})
  endif()
endfunction()

# A shared library that horon opens by name when asked for: libhoron_<name>.so beside the others.
function(horon_part name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;LIBS;INCLUDES" ${ARGN})
  add_library(horon_${name} MODULE ${arg_SRCS})
  list(TRANSFORM arg_DEPS PREPEND horon_)
  target_link_libraries(horon_${name} PRIVATE horon_options ${arg_DEPS} ${arg_LIBS})
  target_include_directories(horon_${name} SYSTEM PRIVATE ${arg_INCLUDES})
  set_target_properties(horon_${name} PROPERTIES PREFIX "lib" INSTALL_RPATH "$ORIGIN")
  set_property(GLOBAL APPEND PROPERTY HORON_PARTS horon_${name})
endfunction()

# One test program; each TEST in it becomes a ctest entry. OPENS: parts that it opens by name, built before it where they
# can be built at all.
function(horon_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SRCS;DEPS;LIBS;PROPERTIES;OPENS" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  add_executable(${name} ${arg_SRCS})
  list(TRANSFORM arg_DEPS PREPEND horon_)
  target_link_libraries(${name} PRIVATE horon_options ${arg_DEPS} ${arg_LIBS} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(part IN LISTS arg_OPENS)
    if(TARGET horon_${part})
      add_dependencies(${name} horon_${part})
    endif()
  endforeach()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} ${arg_PROPERTIES})
endfunction()
