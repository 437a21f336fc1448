#pragma once

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/timings.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

namespace kernel_registry_errors {

/// Errors of the registries; all throw ConfigError. This one throws only for an empty name and for "auto".
void require_usable_name(std::string_view operation, std::string_view name, std::string_view origin);
[[noreturn]] void no_kernel(std::string_view operation, std::string_view name, std::string_view origin);
[[noreturn]] void name_is_taken(std::string_view operation, std::string_view name, std::string_view origin);
/// `names` are the registered ones; `problem` is a description in words.
[[noreturn]] void none_selected(std::string_view operation, std::string_view choice,
                                std::vector<std::string> const& names, std::string const& problem);
[[noreturn]] void nothing_registered(std::string_view operation);
[[noreturn]] void other_interface(std::string_view operation);

}  // namespace kernel_registry_errors

/// The implementations of one operation, seen without its interface.
class AnyKernelRegistry {
 public:
  virtual ~AnyKernelRegistry() = default;

  virtual std::string_view operation() const = 0;
  /// The implementations, the fastest by speed first; of equally fast ones the one that was registered first.
  virtual std::vector<Implementation> implementations() const = 0;
  virtual std::unique_ptr<AnyKernelRegistry> copy() const = 0;
  /// The sum of the implementations' Kernel::kept_bytes.
  virtual std::size_t kept_bytes() const = 0;

  /// Sets the times of this machine that `auto` uses from now on.
  void set_timings(TimesByProblem timings) { timings_ = std::move(timings); }
  /// Sets Implementation::origin of those added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 protected:
  AnyKernelRegistry() = default;
  AnyKernelRegistry(AnyKernelRegistry const&) = default;
  AnyKernelRegistry& operator=(AnyKernelRegistry const&) = default;

  std::string origin_ = "built-in";
  TimesByProblem timings_;
};

/// The implementations of one operation by name.
template <class Interface>
class KernelRegistry final : public AnyKernelRegistry {
 public:
  using Problem = typename Interface::Problem;
  using Entry = KernelEntry<Interface>;

  /// Throws ConfigError where the name is taken, empty or "auto", and where there is no kernel.
  void add(std::string name, int speed, std::shared_ptr<Interface> kernel) {
    kernel_registry_errors::require_usable_name(Interface::operation, name, origin_);
    if (kernel == nullptr) {
      kernel_registry_errors::no_kernel(Interface::operation, name, origin_);
    }
    for (Entry const& entry : entries_) {
      if (entry.name == name) {
        kernel_registry_errors::name_is_taken(Interface::operation, name, entry.origin);
      }
    }
    entries_.push_back({{std::move(name), speed, origin_}, std::move(kernel)});
  }

  /// The implementation that `choice` names or, for "auto", the fastest of those that support the problem: by measured
  /// times if the one that is fastest by speed has been timed for such problems, otherwise by speed. ConfigError gives
  /// the reason.
  std::shared_ptr<Interface> select(std::string_view choice, Problem const& problem) const {
    return selected(choice, problem).kernel;
  }
  Entry selected(std::string_view choice, Problem const& problem) const {
    std::vector<Entry> candidates = supporting(problem);
    std::erase_if(candidates, [&](Entry const& entry) { return choice != "auto" && choice != entry.name; });
    if (candidates.empty()) {
      kernel_registry_errors::none_selected(Interface::operation, choice, names_of(entries_), describe(problem));
    }
    auto const times = timings_.find(timing_key(problem));
    std::string const name =
        measured_choice(times == timings_.end() ? TimesByName() : times->second, names_of(candidates));
    return *std::find_if(candidates.begin(), candidates.end(), [&](Entry const& entry) { return entry.name == name; });
  }

  /// The implementations in the order of registration.
  std::vector<Entry> const& entries() const { return entries_; }
  /// The implementations, the fastest by speed first; of equally fast ones the one that was registered first.
  std::vector<Entry> by_speed() const {
    std::vector<Entry> sorted = entries_;
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.speed > b.speed; });
    return sorted;
  }
  /// The entries of by_speed() that support the problem.
  std::vector<Entry> supporting(Problem const& problem) const {
    std::vector<Entry> entries = by_speed();
    std::erase_if(entries, [&](Entry const& entry) { return !entry.kernel->supports(problem); });
    return entries;
  }

  std::string_view operation() const override { return Interface::operation; }
  std::vector<Implementation> implementations() const override {
    std::vector<Entry> const sorted = by_speed();
    return {sorted.begin(), sorted.end()};
  }
  std::unique_ptr<AnyKernelRegistry> copy() const override { return std::make_unique<KernelRegistry>(*this); }
  std::size_t kept_bytes() const override {
    std::size_t bytes = 0;
    for (Entry const& entry : entries_) {
      bytes += entry.kernel->kept_bytes();
    }
    return bytes;
  }

 private:
  static std::vector<std::string> names_of(std::vector<Entry> const& entries) {
    std::vector<std::string> names;
    names.reserve(entries.size());
    for (Entry const& entry : entries) {
      names.push_back(entry.name);
    }
    return names;
  }

  std::vector<Entry> entries_;
};

/// Every operation's implementations. Registration functions and plug-ins fill it; later it is only read. An operation
/// that Heddle does not know needs no further code: `of<Interface>()` makes its registry.
class KernelRegistries {
 public:
  KernelRegistries() = default;
  KernelRegistries(KernelRegistries const& other);
  KernelRegistries(KernelRegistries&&) noexcept = default;
  KernelRegistries& operator=(KernelRegistries const& other);
  KernelRegistries& operator=(KernelRegistries&&) noexcept = default;
  ~KernelRegistries() = default;

  /// Registries of which every selection is an idle kernel: it supports everything and touches no memory.
  static KernelRegistries idle();
  /// A copy of these registries in which every selection is idle: it touches no memory and reports its calls to
  /// `observer`, which must outlive the selections.
  KernelRegistries rehearsal(KernelObserver& observer) const;

  /// The operation's registry, made if there is none yet. Throws ConfigError if another interface has the name.
  template <class Interface>
  KernelRegistry<Interface>& of() {
    if (AnyKernelRegistry const* const known = find(Interface::operation)) {
      static_cast<void>(checked<Interface>(*known));
    } else {
      insert(std::make_unique<KernelRegistry<Interface>>());
    }
    return static_cast<KernelRegistry<Interface>&>(*find(Interface::operation));
  }
  /// Throws ConfigError where nothing is registered for the operation.
  template <class Interface>
  KernelRegistry<Interface> const& of() const {
    AnyKernelRegistry const* const known = find(Interface::operation);
    if (known == nullptr) {
      kernel_registry_errors::nothing_registered(Interface::operation);
    }
    return checked<Interface>(*known);
  }

  /// KernelRegistry::select by `choices`, observed where there is an observer.
  template <class Interface>
  std::shared_ptr<Interface> select(KernelChoices const& choices, typename Interface::Problem const& problem) const {
    if (idle_ && find(Interface::operation) == nullptr) {
      return Interface::observed({problem, {}, nullptr, observer_, true});
    }
    KernelRegistry<Interface> const& registry = of<Interface>();
    KernelEntry<Interface> const entry = registry.selected(choices.of(Interface::operation), problem);
    if (observer_ == nullptr) {
      return entry.kernel;
    }
    observer_->selected({Interface::operation, describe(problem), entry.name});
    return Interface::observed({problem, registry.supporting(problem), entry.kernel, observer_, idle_});
  }

  /// The registries in the order in which the operations were first registered.
  std::vector<AnyKernelRegistry const*> all() const;
  /// Reports every selection and each of its calls from now on to `observer`, which must outlive the selections.
  void observe(KernelObserver& observer) { observer_ = &observer; }
  /// Sets the times that `auto` uses from now on, for every operation.
  void set_timings(KernelTimings const& timings);
  /// Sets Implementation::origin of those added from now on.
  void set_origin(std::string const& origin);
  /// Throws ConfigError for a choice whose operation is not registered; the message names the place of the choice.
  void require_known(KernelChoices const& choices) const;
  /// The sum of all implementations' Kernel::kept_bytes.
  std::size_t kept_bytes() const;

 private:
  template <class Interface>
  static KernelRegistry<Interface> const& checked(AnyKernelRegistry const& registry) {
    auto const* const typed = dynamic_cast<KernelRegistry<Interface> const*>(&registry);
    if (typed == nullptr) {
      kernel_registry_errors::other_interface(Interface::operation);
    }
    return *typed;
  }
  /// The operation's registry; null if there is none.
  AnyKernelRegistry* find(std::string_view operation) const;
  void insert(std::unique_ptr<AnyKernelRegistry> registry);

  std::vector<std::unique_ptr<AnyKernelRegistry>> registries_;
  std::string origin_ = "built-in";
  KernelObserver* observer_ = nullptr;
  bool idle_ = false;
};

/// Implementations to choose from and the choice made.
struct KernelSource {
  KernelRegistries const& registries;
  KernelChoices const& choices;

  template <class Interface>
  std::shared_ptr<Interface> select(typename Interface::Problem const& problem) const {
    return registries.select<Interface>(choices, problem);
  }
};

}  // namespace heddle
