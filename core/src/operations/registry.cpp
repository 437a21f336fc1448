#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/operations/registry.hpp>
#include <limits>

namespace heddle {

namespace {

void require_usable_name(std::string_view operation, std::string_view name, std::string_view origin) {
  if (name.empty() || name == "auto") {
    throw ConfigError(
        "{} registers an implementation of operation '{}' as '{}'; a name is not empty, and "
        "'auto' stands for the fastest",
        origin, operation, name);
  }
}

std::string registered_names(std::vector<std::string> const& names) {
  return fmt::format("registered at this CPU level: {}; auto picks the fastest that supports the call",
                     fmt::join(names, ", "));
}

std::vector<std::string> names_of(std::vector<Implementation> const& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (Implementation const& entry : entries) {
    names.push_back(entry.name);
  }
  return names;
}

std::vector<Implementation> by_speed(std::vector<Implementation> parts) {
  std::ranges::stable_sort(parts, std::greater(), &Implementation::speed);
  return parts;
}

/// `names` are the registered ones.
void require_one_of(std::vector<std::string> const& names, std::string_view operation, std::string_view choice,
                    std::string_view place = "") {
  if (choice != "auto" && std::ranges::find(names, choice) == names.end()) {
    throw ConfigError("{}{}kernels.{} = '{}': no such implementation; {}", place, place.empty() ? "" : ": ", operation,
                      choice, registered_names(names));
  }
}

}  // namespace

AnyKernelRegistry::AnyKernelRegistry(std::string_view operation) : operation_(operation) {}
AnyKernelRegistry::AnyKernelRegistry(AnyKernelRegistry const&) = default;
AnyKernelRegistry& AnyKernelRegistry::operator=(AnyKernelRegistry const&) = default;
AnyKernelRegistry::~AnyKernelRegistry() = default;

void AnyKernelRegistry::add_entry(std::string name, int speed, std::shared_ptr<Kernel> kernel, bool is_part) {
  require_usable_name(operation_, name, origin_);
  if (kernel == nullptr) {
    throw ConfigError("{} registers implementation '{}' of operation '{}' without a kernel: a null pointer", origin_,
                      name, operation_);
  }
  auto const taken = std::ranges::find(entries_, name, &Implementation::name);
  if (taken != entries_.end() && !(is_part && taken->origin == origin_)) {
    throw ConfigError("the name '{}' of operation '{}' is taken by {}; each implementation needs its own name", name,
                      operation_, taken->origin);
  }
  entries_.push_back({std::move(name), speed, origin_, std::move(kernel)});
}

std::vector<Implementation> AnyKernelRegistry::implementations() const {
  std::vector<Implementation> result;
  for (Implementation& part : by_speed(entries_)) {
    if (std::ranges::find(result, part.name, &Implementation::name) == result.end()) {
      result.push_back(std::move(part));
    }
  }
  return result;
}

std::vector<std::string> AnyKernelRegistry::names() const {
  std::vector<std::string> names;
  for (Implementation const& part : entries_) {
    if (std::ranges::find(names, part.name) == names.end()) {
      names.push_back(part.name);
    }
  }
  return names;
}

std::shared_ptr<Kernel> AnyKernelRegistry::find(std::string_view name) const {
  auto const found = std::ranges::find(entries_, name, &Implementation::name);
  return found == entries_.end() ? nullptr : found->kernel;
}

void AnyKernelRegistry::add_named_trial(NamedTrial trial) {
  if (trial.name.empty() || std::ranges::find(trials_, trial.name, &NamedTrial::name) != trials_.end()) {
    throw ConfigError("{} adds a trial '{}' of operation '{}'; each needs a name of its own", origin_, trial.name,
                      operation_);
  }
  trials_.push_back(std::move(trial));
}

void AnyKernelRegistry::prefer_reference() {
  timings_.clear();
  for (Implementation& entry : entries_) {
    entry.speed = entry.name == "reference" ? std::numeric_limits<int>::max() : entry.speed;
  }
}

std::size_t AnyKernelRegistry::kept_bytes() const {
  std::size_t bytes = 0;
  for (Implementation const& entry : entries_) {
    bytes += entry.kernel->kept_bytes();
  }
  return bytes;
}

std::vector<Implementation> AnyKernelRegistry::candidates(std::string_view choice, AnyProblem const& problem) const {
  std::vector<Implementation> entries = by_speed(entries_);
  std::erase_if(entries, [&](Implementation const& entry) {
    bool const chosen = choice == "auto" ? !entry.kernel->only_by_name() : choice == entry.name;
    return !chosen || !problem.supported_by(*entry.kernel);
  });
  return entries;
}

std::vector<Implementation> AnyKernelRegistry::supporting(AnyProblem const& problem) const {
  return candidates("auto", problem);
}

void AnyKernelRegistry::fail_selection(KernelChoices::Choice const& choice, AnyProblem const& problem) const {
  require_one_of(names(), operation_, choice.implementation, choice.origin);
  if (choice.implementation == "auto") {
    throw ConfigError("no implementation of operation '{}' supports {}; {}", operation_, problem.description,
                      registered_names(names()));
  }
  auto const others = names_of(supporting(problem));
  throw ConfigError(
      "{}{}kernels.{} = '{}' does not support {}; {}", choice.origin, choice.origin.empty() ? "" : ": ", operation_,
      choice.implementation, problem.description,
      others.empty() ? "no implementation does" : fmt::format("auto and these do: {}", fmt::join(others, ", ")));
}

Implementation AnyKernelRegistry::selected(KernelChoices::Choice const& choice, AnyProblem const& problem) const {
  std::vector<Implementation> const found = candidates(choice.implementation, problem);
  if (found.empty()) {
    fail_selection(choice, problem);
  }
  auto const times = timings_.find(problem.key);
  std::string const name = measured_choice(times == timings_.end() ? TimesByName() : times->second, names_of(found));
  return *std::ranges::find(found, name, &Implementation::name);
}

KernelRegistries::KernelRegistries(KernelRegistries const& other)
    : origin_(other.origin_), observer_(other.observer_), idle_(other.idle_) {
  for (auto const& registry : other.registries_) {
    registries_.push_back(registry->copy());
  }
}

KernelRegistries& KernelRegistries::operator=(KernelRegistries const& other) {
  return *this = KernelRegistries(other);
}

KernelRegistries KernelRegistries::dry_run(KernelObserver& observer) const {
  KernelRegistries registries = *this;
  registries.idle_ = true;
  registries.observer_ = &observer;
  return registries;
}

KernelRegistries KernelRegistries::preferring_reference() const {
  KernelRegistries registries = *this;
  for (auto const& registry : registries.registries_) {
    registry->prefer_reference();
  }
  return registries;
}

std::vector<AnyKernelRegistry const*> KernelRegistries::all() const {
  std::vector<AnyKernelRegistry const*> all;
  for (auto const& registry : registries_) {
    all.push_back(registry.get());
  }
  return all;
}

void KernelRegistries::set_timings(KernelTimings const& timings) {
  for (auto const& registry : registries_) {
    auto const found = timings.find(std::string(registry->operation()));
    registry->set_timings(found == timings.end() ? TimesByProblem() : found->second);
  }
}

void KernelRegistries::set_origin(std::string const& origin) {
  origin_ = origin;
  for (auto const& registry : registries_) {
    registry->set_origin(origin);
  }
}

void KernelRegistries::require_known(KernelChoices const& choices) const {
  std::vector<std::string> operations{"cache"};
  operations.insert(operations.end(), operation_names().begin(), operation_names().end());
  for (auto const& registry : registries_) {
    std::string_view const operation = registry->operation();
    if (std::ranges::find(operations, operation) == operations.end()) {
      operations.emplace_back(operation);
    }
  }
  for (auto const& [operation, choice] : choices.operations()) {
    if (std::ranges::find(operations, operation) == operations.end()) {
      throw ConfigError("{}{}there is no key kernels.{}; {}", choice.origin, choice.origin.empty() ? "" : ": ",
                        operation, nearest_or_all(operation, operations, "an operation of a plug-in in plugins.paths"));
    }
    if (AnyKernelRegistry const* const registry = find(operation)) {
      require_one_of(registry->names(), operation, choice.implementation, choice.origin);
    }
  }
}

std::size_t KernelRegistries::kept_bytes() const {
  std::size_t bytes = 0;
  for (auto const& registry : registries_) {
    bytes += registry->kept_bytes();
  }
  return bytes;
}

AnyKernelRegistry* KernelRegistries::find(std::string_view operation) const {
  auto const found = std::ranges::find(registries_, operation, [](auto const& each) { return each->operation(); });
  return found == registries_.end() ? nullptr : found->get();
}

void KernelRegistries::throw_missing(std::string_view operation) const {
  if (find(operation) == nullptr) {
    throw ConfigError("operation '{}' has no implementation; name the plug-in that brings one in plugins.paths",
                      operation);
  }
  throw ConfigError("operation '{}' is registered with another interface; each operation needs its own name",
                    operation);
}

void KernelRegistries::insert(std::unique_ptr<AnyKernelRegistry> registry) {
  registry->set_origin(origin_);
  registries_.push_back(std::move(registry));
}

}  // namespace heddle
