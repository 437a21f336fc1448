#include <dlfcn.h>

#include <filesystem>
#include <heddle/core/base/compiled_abi_tag.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/library.hpp>

namespace heddle {

std::string abi_tag() {
  return plugin::compiled_abi_tag();
}

void* function_beside_core(std::string const& file, char const* name) {
  Dl_info core{};
  // The address of a function of the core library gives that library's path.
  if (dladdr(reinterpret_cast<void const*>(&function_beside_core), &core) == 0 || core.dli_fname == nullptr) {
    throw Error("the loader does not report the path of libheddle_core.so");
  }
  auto const path = std::filesystem::absolute(core.dli_fname).parent_path() / file;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    throw ConfigError("{} cannot be loaded; it belongs in the directory of libheddle_core.so ({})", file, dlerror());
  }
  return function;
}

}  // namespace heddle
