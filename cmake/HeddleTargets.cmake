# heddle_target_options(TARGET): the options of all our own targets: warnings, instruction set, sanitizers. -O2 compiles faster
# than -O3, which kernels and sums of gradients choose for themselves.
function(heddle_target_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow $<$<CONFIG:Release>:-O2>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlaps and overflows in std::string's operator+ that are not there.
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
  endif()
  if(HEDDLE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_compile_options(${target} PRIVATE ${HEDDLE_ARCH_FLAGS})
  if(HEDDLE_SANITIZE)
    target_compile_options(${target} PRIVATE
      -O1 -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>) # which the sanitizers' own code sets off
    target_link_options(${target} PRIVATE -fsanitize=${HEDDLE_SANITIZE})
  endif()
endfunction()

# heddle_precompile(TARGET headers...): these headers, which most files of the target include, are parsed once. nvcc cannot read
# another compiler's precompiled headers. The presets debug and sanitize precompile nothing, and so find missing includes.
function(heddle_precompile target)
  if(HEDDLE_PRECOMPILE AND NOT HEDDLE_KOKKOS_HAS_DEVICE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>) # without it ccache cannot keep them
  endif()
endfunction()

# The standard library's headers, and {fmt}'s, for heddle_precompile.
set(HEDDLE_COMMON_HEADERS <algorithm> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <utility>
  <vector> <fmt/format.h>)

# heddle_add_room(NAME [SHARED]): one library per room, from the *.cpp below its src, known as heddle::NAME.
function(heddle_add_room room)
  cmake_parse_arguments(ARG "SHARED" "" "" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/*.cpp")
  if(ARG_SHARED)
    set(kind SHARED)
  else()
    set(kind STATIC)
  endif()
  add_library(heddle_${room} ${kind} ${sources})
  add_library(heddle::${room} ALIAS heddle_${room})
  set_target_properties(heddle_${room} PROPERTIES EXPORT_NAME ${room})
  target_include_directories(heddle_${room} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_compile_features(heddle_${room} PUBLIC cxx_std_20)
  target_include_directories(heddle_${room} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  heddle_target_options(heddle_${room})
  if(NOT room STREQUAL "kernels") # which has its own
    heddle_precompile(heddle_${room} ${HEDDLE_COMMON_HEADERS})
  endif()
endfunction()
