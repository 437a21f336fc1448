#include <dlfcn.h>
#include <fmt/format.h>

#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/library.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/plugins/loading.hpp>

#include "checks/crash_note.hpp"

namespace heddle {
namespace {

boost::dll::shared_library open_library(std::string const& path) {
  if (std::string const problem = file_problem(path); !problem.empty()) {
    throw ConfigError("plug-in {}; expected a shared library", problem);
  }
  function_beside_core("libheddle_checks.so", "heddle_check");  // which plug-ins that add trials are linked with
  // Registered kernels and layers outlive the handle.
  auto const never_unload = static_cast<boost::dll::load_mode::type>(RTLD_NODELETE);
  try {
    return boost::dll::shared_library(std::filesystem::absolute(path).string(),
                                      boost::dll::load_mode::rtld_now | never_unload);
  } catch (std::exception const& reason) {
    throw ConfigError("plug-in {}: cannot be loaded; expected a shared library whose symbols can all be found ({})",
                      path, reason.what());
  }
}

template <class Function>
auto& entry_point(boost::dll::shared_library const& library, std::string const& path, char const* name) {
  if (!library.has(name)) {
    throw ConfigError(
        "plug-in {}: it has no entry point {}; a plug-in's source ends with HEDDLE_PLUGIN(its register "
        "function), from <heddle/core/plugins/entry.hpp>",
        path, name);
  }
  return library.get<Function>(name);
}

}  // namespace

void load_plugin(std::string const& path, Registries& registries) {
  boost::dll::shared_library const library = open_library(path);
  std::string const tag = entry_point<char const*()>(library, path, "heddle_plugin_abi_tag")();
  if (tag != abi_tag()) {
    throw ConfigError(
        "plug-in {}: it was built for\n  {}\nbut this is\n  {}\nBuild it against this "
        "installation (docs/guide/plugins.md)",
        path, tag, abi_tag());
  }
  auto& register_all = entry_point<void(Registries&)>(library, path, "heddle_plugin_register");
  // Registration fills a copy, so that an error leaves the registries unchanged.
  Registries filled = registries;
  auto const set_origin = [&](std::string const& origin) {
    filled.kernels.set_origin(origin);
    filled.layers.set_origin(origin);
    filled.layers.inputs.set_origin(origin);
    filled.tasks.set_origin(origin);
    filled.schedules.set_origin(origin);
    filled.metrics.set_origin(origin);
  };
  set_origin(path);
  CrashNote crash_note;
  crash_note.set(fmt::format("plug-in {}: its register function crashes", path));
  try {
    register_all(filled);
  } catch (std::exception const& reason) {
    throw ConfigError("plug-in {}: {}", path, reason.what());
  } catch (...) {
    throw ConfigError("plug-in {}: its register function throws an object that is not a std::exception", path);
  }
  set_origin("built-in");
  registries = std::move(filled);
}

void require_checked(std::string const& path, Registries const& registries, Execution& execution) {
  for (CheckResult const& result : check_origin(registries, path, execution)) {
    if (!result.passed()) {
      throw ConfigError(
          "plug-in {}: {}. `heddle kernels --plugin {} --check` shows all errors; --trust-plugins loads it unchecked",
          path, describe(result), path);
    }
  }
}

}  // namespace heddle
