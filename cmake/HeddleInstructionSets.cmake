# The instruction sets that the build is for. Included after HeddleKokkos. Sets
#   HEDDLE_ARCH_FLAGS         for everything but the kernels that are compiled once for each instruction set
#   HEDDLE_CPU_LEVELS         whether there are such kernels
#   HEDDLE_INSTRUCTION_SET    the name of the only instruction set if there are none
# A Kokkos that was built for one processor (Kokkos_ARCH_...) adds that processor's flags to all code that uses it.
set(heddle_kokkos_flags "")
foreach(target Kokkos::kokkos Kokkos::kokkoscore)
  if(TARGET ${target})
    get_target_property(flags ${target} INTERFACE_COMPILE_OPTIONS)
    list(APPEND heddle_kokkos_flags ${flags})
  endif()
endforeach()

set(HEDDLE_CPU_LEVELS OFF)
set(HEDDLE_ARCH_FLAGS "")
if(HEDDLE_NATIVE OR HEDDLE_SANITIZE) # a sanitizer build runs on this machine
  set(HEDDLE_ARCH_FLAGS -march=native)
  set(HEDDLE_INSTRUCTION_SET "compiled for one machine, HEDDLE_NATIVE")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(HEDDLE_INSTRUCTION_SET "for the compiler's default")
elseif(heddle_kokkos_flags MATCHES "-m(arch|cpu)=|-mavx|-xHost")
  set(HEDDLE_INSTRUCTION_SET "for the processor of Kokkos")
else()
  set(HEDDLE_ARCH_FLAGS -march=x86-64-v2)
  set(HEDDLE_INSTRUCTION_SET "x86-64-v2")
  if(NOT HEDDLE_KOKKOS_HAS_DEVICE)
    set(HEDDLE_CPU_LEVELS ON)
  endif()
endif()
