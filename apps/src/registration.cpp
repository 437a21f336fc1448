#include "registration.hpp"

#include <filesystem>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/kernels/register.hpp>
#include <set>

namespace heddle {

void register_everything(std::vector<std::string> const& plugins, Registries& registries, CpuLevel level) {
  register_built_in_kernels(registries.kernels, level);
  register_built_in_layers(registries.layers);
  std::set<std::filesystem::path> loaded;
  for (std::string const& path : plugins) {
    if (loaded.insert(std::filesystem::weakly_canonical(path)).second) {
      load_plugin(path, registries);
    }
  }
}

}  // namespace heddle
