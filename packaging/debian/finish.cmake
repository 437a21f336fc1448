# After the files were installed into CPack's folder and before they are packed: private libraries without search paths in
# their programs, compressed changelog and man pages, copyright. Called by CPack (CPACK_PRE_BUILD_SCRIPTS).
set(root "${CPACK_TEMPORARY_DIRECTORY}")
set(documents "${root}/usr/share/doc/heddle")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The dynamic linker finds libraries of /usr/lib by itself, and HDF5's and MPI's, too.
find_program(PATCHELF patchelf REQUIRED)
file(GLOB binaries "${root}/usr/bin/heddle" "${root}/usr/${CPACK_HEDDLE_LIBDIR}/libheddle_*.so")
foreach(binary IN LISTS binaries)
  run("${PATCHELF}" --remove-rpath "${binary}")
endforeach()
file(GLOB libraries "${root}/usr/${CPACK_HEDDLE_LIBDIR}/libheddle_*.so")
foreach(library IN LISTS libraries)
  file(CHMOD "${library}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()

file(COPY_FILE "${CPACK_HEDDLE_DEBIAN}/copyright" "${documents}/copyright")
file(REMOVE "${documents}/LICENSE")
file(READ "${CPACK_HEDDLE_DEBIAN}/changelog" changelog)
string(REPLACE "@VERSION@" "${CPACK_PACKAGE_VERSION}" changelog "${changelog}")
file(WRITE "${documents}/changelog" "${changelog}")
run(gzip -9n "${documents}/changelog")
file(GLOB pages "${root}/usr/share/man/man1/*.1")
if(pages)
  run(gzip -9n ${pages})
endif()
# Lintian's file of findings that stay, with the reasons.
file(COPY "${CPACK_HEDDLE_DEBIAN}/lintian-overrides" DESTINATION "${root}/usr/share/lintian/overrides")
file(RENAME "${root}/usr/share/lintian/overrides/lintian-overrides" "${root}/usr/share/lintian/overrides/heddle")
