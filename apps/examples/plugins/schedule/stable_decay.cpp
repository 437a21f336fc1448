// A plug-in: a schedule that keeps the peak of the learning rate and falls linearly to 0 at the end of the run (Zhai et
// al. 2022, Hägele et al. 2024).

#include <algorithm>
#include <heddle/core/plugins/entry.hpp>

namespace stable_decay_plugin {

constexpr double decay = 0.2;  // the part of the run in which the rate falls

/// The factor of optimizer.learning_rate after the warm-up.
double stable_decay(heddle::ScheduledUpdate const& update) {
  return std::min(1.0, (1 - update.progress) / decay);
}

void register_all(heddle::Registries& registries) {
  registries.schedules.add("stable_decay", stable_decay);
}

}  // namespace stable_decay_plugin

HEDDLE_PLUGIN(stable_decay_plugin::register_all)
