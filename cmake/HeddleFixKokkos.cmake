# Included after find_package(Kokkos), here and by the installed heddleConfig.cmake.
# Trilinos builds of Kokkos 3 (Debian 12 has 3.4.1) export an include directory that does not hold Kokkos; the right
# one is in Kokkos_INCLUDE_DIRS. Other builds of Kokkos 3 do not set that variable, and Kokkos 4 and later need no
# change. Where CMake compiles for another machine, the path of libdl is not in its folder of libraries.
if(Kokkos_VERSION VERSION_LESS 4 AND Kokkos_INCLUDE_DIRS)
  set_target_properties(Kokkos::kokkos PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Kokkos_INCLUDE_DIRS}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Kokkos_INCLUDE_DIRS}")
  if(CMAKE_CROSSCOMPILING AND TARGET trilinos_kokkoscore)
    set_target_properties(trilinos_kokkoscore PROPERTIES INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  endif()
endif()
