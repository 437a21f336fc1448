-- A module for Lmod. `cmake --install` puts it into PREFIX/share/heddle/modulefiles/heddle/VERSION.lua, where it finds the
-- prefix by its own place: module use PREFIX/share/heddle/modulefiles && module load heddle
-- In another module tree, name it heddle/VERSION.lua and set `elsewhere` to where Heddle is.
local elsewhere = pathJoin("/opt/heddle", myModuleVersion())
local prefix = myFileName():match("^(.*)/share/heddle/modulefiles/") or elsewhere

help([[
Heddle trains encoder-decoder, decoder-only and encoder-only Transformers on clusters.
  heddle --help        its commands
  heddle selftest      tries the installation
The pages are in $HEDDLE_ROOT/share/doc/heddle, examples and job scripts in $HEDDLE_ROOT/share/heddle.
Load the MPI that Heddle was built with before you start several ranks.
]])
whatis("Name: Heddle")
whatis("Version: " .. myModuleVersion())
whatis("Category: machine learning, machine translation")
whatis("Description: trains Transformers on clusters with MPI, Kokkos and HDF5")

if mode() == "load" and not isFile(pathJoin(prefix, "bin/heddle")) then
  LmodError("there is no Heddle in " .. prefix .. ": set `elsewhere` in " .. myFileName())
end

-- One version at a time.
family("heddle")
setenv("HEDDLE_ROOT", prefix)
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- For find_package(heddle) of a plug-in.
prepend_path("CMAKE_PREFIX_PATH", prefix)
