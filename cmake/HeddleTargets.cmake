# heddle_target_options(TARGET): the options of all our own targets: warnings, instruction set, sanitizers. -O1 compiles a third
# faster than -O2; kernels and sums of gradients choose -O3 for themselves.
function(heddle_target_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow $<$<CONFIG:Release>:-O1>)
  # GCC collects garbage from 1 GiB on only: a tenth of the time, for a tenth more memory.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=200> $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 sees overlaps and overflows in std::string's operator+ that are not there, GCC 14 overflows in copies of std::vector.
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
    if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64") # there it sees an uninitialised function in std::regex
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
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

# heddle_precompile(TARGET headers...): these headers, which most files of the target include, are parsed once.
# heddle_precompile(TARGET LIKE other): the target uses the headers that `other` has precompiled, with its own, equal options.
# Definitions that these headers do not read may differ (the compiler checks it), and so may the level of optimisation, where it
# is not higher than the headers': g++ 12 may crash. nvcc cannot read another compiler's precompiled headers. The presets debug
# and sanitize precompile nothing, and so find missing includes.
function(heddle_precompile target)
  cmake_parse_arguments(ARG "" "LIKE" "" ${ARGN})
  if(NOT HEDDLE_PRECOMPILE OR HEDDLE_KERNEL_MEMORY STREQUAL "kokkos_device")
    return()
  endif()
  if(ARG_LIKE)
    target_precompile_headers(${target} REUSE_FROM ${ARG_LIKE})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>) # without it ccache cannot keep them
endfunction()

# heddle_unity(TARGET DIRECTORY [ALONE regex]): the files of each folder in DIRECTORY are compiled together, as one translation unit. The presets
# debug and sanitize compile each file alone, and so find what a file takes from its neighbours; so does a build for a device, where only some of a
# folder's files need the device's compiler. A file with compile options of its own is always compiled alone, as are those whose
# paths match ALONE: they have local names that others of their folders have, too.
function(heddle_unity target directory)
  if(NOT HEDDLE_UNITY OR HEDDLE_KERNEL_MEMORY STREQUAL "kokkos_device")
    return()
  endif()
  cmake_parse_arguments(ARG "" "ALONE" "" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${directory}" OUTPUT_VARIABLE path)
    if(path MATCHES "^([a-z_0-9]+)/")
      set(folder "${CMAKE_MATCH_1}")
    else()
      set(folder root)
    endif()
    if(NOT path MATCHES "^\\.\\./" AND NOT (ARG_ALONE AND path MATCHES "${ARG_ALONE}"))
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes the files of a unit for headers, in whose classes it warns of types from anonymous namespaces; and a local name
  # may be that of a function in a neighbour.
  target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# heddle_common_headers: an empty library that precompiles the headers which most files of core, dist and io include: the
# standard library's, {fmt}'s, and tensors, communicators and kernels. None includes core/config/config.hpp, so that a new key
# compiles only the files that read the configuration.
set(HEDDLE_COMMON_HEADERS <algorithm> <array> <cstdint> <deque> <filesystem> <functional> <map> <memory> <optional> <span>
  <string> <string_view> <utility> <variant> <vector> <fmt/format.h> <heddle/core/base/error.hpp> <heddle/core/operations/registry.hpp>
  <heddle/core/parallel/communicator.hpp> <heddle/core/parameters/parameter.hpp> <heddle/core/tensor/arena.hpp> <heddle/core/tensor/pack.hpp>)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/common_headers.cpp" CONTENT "")
add_library(heddle_common_headers OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/common_headers.cpp")
target_include_directories(heddle_common_headers PRIVATE "${PROJECT_SOURCE_DIR}/core/include")
target_link_libraries(heddle_common_headers PRIVATE fmt::fmt Kokkos::kokkos) # with OpenMP its flag must be the same
heddle_target_options(heddle_common_headers)
heddle_precompile(heddle_common_headers ${HEDDLE_COMMON_HEADERS})

# heddle_add_module(NAME [SHARED]): one library per module, from the *.cpp below its src, known as heddle::NAME.
function(heddle_add_module module)
  cmake_parse_arguments(ARG "SHARED" "" "" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/*.cpp")
  if(ARG_SHARED)
    set(kind SHARED)
  else()
    set(kind STATIC)
  endif()
  add_library(heddle_${module} ${kind} ${sources})
  add_library(heddle::${module} ALIAS heddle_${module})
  set_target_properties(heddle_${module} PROPERTIES EXPORT_NAME ${module})
  target_include_directories(heddle_${module} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_compile_features(heddle_${module} PUBLIC cxx_std_20)
  target_include_directories(heddle_${module} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  heddle_target_options(heddle_${module})
  if(NOT module STREQUAL "kernels") # which has its own
    heddle_precompile(heddle_${module} LIKE heddle_common_headers)
    heddle_unity(heddle_${module} "${CMAKE_CURRENT_SOURCE_DIR}/src")
  endif()
endfunction()
