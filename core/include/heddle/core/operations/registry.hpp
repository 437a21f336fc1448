#pragma once

#include <heddle/core/config/kernel_choices.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/timings.hpp>
#include <heddle/core/operations/trial.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// A problem of an operation, without its type: the part of a selection that depends on the interface.
struct AnyProblem {
  std::string description;
  std::string key;                                  ///< its timing_key
  std::function<bool(Kernel const&)> supported_by;  ///< refers to the problem

  template <class Interface>
  static AnyProblem of(typename Interface::Problem const& problem) {
    return {describe(problem), timing_key(problem),
            [&](Kernel const& kernel) { return static_cast<Interface const&>(kernel).supports(problem); }};
  }
};

/// The implementations of one operation, without its interface.
class AnyKernelRegistry {
 public:
  virtual ~AnyKernelRegistry();
  virtual std::unique_ptr<AnyKernelRegistry> copy() const = 0;

  std::string_view operation() const { return operation_; }
  /// The implementations, each once, the fastest by speed first; of equally fast ones the one that was registered
  /// first.
  std::vector<Implementation> implementations() const;
  /// The implementations' names in the order of registration.
  std::vector<std::string> names() const;
  /// The sum of the implementations' Kernel::kept_bytes.
  std::size_t kept_bytes() const;

  /// Sets the times of this machine that `auto` uses from now on.
  void set_timings(TimesByProblem timings) { timings_ = std::move(timings); }
  /// Sets Implementation::origin of implementations that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  /// From now on `auto` selects `reference` wherever that supports the problem.
  void prefer_reference();

  /// The problems by which the operation's implementations are checked, in the order in which they were added.
  std::vector<NamedTrial> const& trials() const { return trials_; }

  /// The implementation of that name, of several parts the first; null if there is none.
  std::shared_ptr<Kernel> find(std::string_view name) const;
  /// The parts of the implementations in the order of registration.
  std::vector<Implementation> const& parts() const { return entries_; }

  /// The parts that `auto` may select for the problem, in the order of implementations(): those that support it
  /// and are not Kernel::only_by_name.
  std::vector<Implementation> supporting(AnyProblem const& problem) const;
  /// The implementation that `choice` names or, for "auto", the fastest that supports the problem: by measured
  /// times if the one that is fastest by speed has been timed for such problems, otherwise by speed.
  /// ConfigError gives the reason.
  Implementation selected(KernelChoices::Choice const& choice, AnyProblem const& problem) const;

 protected:
  // Not in the header, where every file with a kernel would compile them.
  explicit AnyKernelRegistry(std::string_view operation);
  AnyKernelRegistry(AnyKernelRegistry const&);
  AnyKernelRegistry& operator=(AnyKernelRegistry const&);

  /// Throws ConfigError where the name is empty or "auto", where it is taken (a part may have the name of an
  /// implementation of the same origin), and where there is no kernel.
  void add_entry(std::string name, int speed, std::shared_ptr<Kernel> kernel, bool is_part);
  /// Throws ConfigError where the name is taken or empty.
  void add_named_trial(NamedTrial trial);

 private:
  /// The parts that support the problem and that the choice allows, the fastest by speed first.
  std::vector<Implementation> candidates(std::string_view choice, AnyProblem const& problem) const;
  [[noreturn]] void fail_selection(KernelChoices::Choice const& choice, AnyProblem const& problem) const;

  std::string_view operation_;
  std::string origin_ = "built-in";
  TimesByProblem timings_;
  std::vector<Implementation> entries_;
  std::vector<NamedTrial> trials_;
};

/// The implementations of one operation by name. The work is AnyKernelRegistry's, which is compiled once.
template <class Interface>
class KernelRegistry final : public AnyKernelRegistry {
 public:
  using Problem = typename Interface::Problem;

  KernelRegistry() : AnyKernelRegistry(Interface::operation) {}

  /// Throws ConfigError where the name is taken, empty or "auto", and where there is no kernel.
  void add(std::string name, int speed, std::shared_ptr<Interface> kernel) {
    add_entry(std::move(name), speed, std::move(kernel), false);
  }
  /// Adds a part of an implementation, for problems that none of its other parts supports: the implementation `kokkos`
  /// is compiled in several libraries, each for other element types. Throws ConfigError as add() does, except where
  /// another part of the same origin has the name.
  void add_part(std::string name, int speed, std::shared_ptr<Interface> kernel) {
    add_entry(std::move(name), speed, std::move(kernel), true);
  }

  /// Adds a problem by which implementations of the operation are checked (trial.hpp): all that support it, whoever
  /// registered them. `name` describes it. Throws ConfigError where the name is taken or empty.
  void add_trial(std::string name, std::function<Trial<Interface>(TrialTensors&, DType)> make) {
    add_named_trial({std::move(name), [make = std::move(make)](TrialTensors& tensors, DType dtype) {
                       return AnyTrial(make(tensors, dtype));
                     }});
  }

  /// The kernel of selected().
  std::shared_ptr<Interface> select(std::string_view choice, Problem const& problem) const {
    KernelChoices::Choice const named{.implementation = std::string(choice)};
    return std::static_pointer_cast<Interface>(selected(named, AnyProblem::of<Interface>(problem)).kernel);
  }

  /// parts() with their type.
  std::vector<KernelEntry<Interface>> entries() const {
    std::vector<KernelEntry<Interface>> typed;
    for (auto const& [name, speed, origin, kernel] : parts()) {
      typed.push_back({name, speed, origin, std::static_pointer_cast<Interface>(kernel)});
    }
    return typed;
  }

  std::unique_ptr<AnyKernelRegistry> copy() const override { return std::make_unique<KernelRegistry>(*this); }
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

  /// A copy of these registries in which every selection is idle: it touches no memory and reports its calls to
  /// `observer`, which must outlive the selections. Where nothing is registered for an operation, an idle kernel
  /// supports everything.
  KernelRegistries dry_run(KernelObserver& observer) const;

  /// The operation's registry, made if there is none yet. Throws ConfigError if another interface has the name.
  template <class Interface>
  KernelRegistry<Interface>& of() {
    if (find(Interface::operation) == nullptr) {
      insert(std::make_unique<KernelRegistry<Interface>>());
    }
    static_cast<void>(std::as_const(*this).of<Interface>());
    return static_cast<KernelRegistry<Interface>&>(*find(Interface::operation));
  }
  /// Throws ConfigError where nothing is registered for the operation, and where another interface has its name.
  template <class Interface>
  KernelRegistry<Interface> const& of() const {
    auto const* const typed = dynamic_cast<KernelRegistry<Interface> const*>(find(Interface::operation));
    if (typed == nullptr) {
      throw_missing(Interface::operation);
    }
    return *typed;
  }

  /// KernelRegistry::select by `choices`, observed where there is an observer.
  template <class Interface>
  std::shared_ptr<Interface> select(KernelChoices const& choices, typename Interface::Problem const& problem) const {
    if (idle_ && find(Interface::operation) == nullptr) {
      return Interface::observed({problem, {}, nullptr, observer_, true});
    }
    KernelRegistry<Interface> const& registry = of<Interface>();
    AnyProblem const any_problem = AnyProblem::of<Interface>(problem);
    Implementation const entry = registry.selected(choices.choice(Interface::operation), any_problem);
    auto kernel = std::static_pointer_cast<Interface>(entry.kernel);
    if (observer_ == nullptr) {
      return kernel;
    }
    observer_->selected({Interface::operation, any_problem.description, entry.name});
    return Interface::observed({problem, registry.supporting(any_problem), std::move(kernel), observer_, idle_});
  }

  /// True if an implementation that `auto` may select supports the problem.
  template <class Interface>
  bool supported(typename Interface::Problem const& problem) const {
    AnyKernelRegistry const* const registry = find(Interface::operation);
    return registry != nullptr && !registry->supporting(AnyProblem::of<Interface>(problem)).empty();
  }

  /// A copy in which `auto` selects `reference` wherever that supports the problem.
  KernelRegistries preferring_reference() const;

  /// The operation's registry; null if there is none.
  AnyKernelRegistry const* registry(std::string_view operation) const { return find(operation); }
  /// The registries in the order in which the operations were first registered.
  std::vector<AnyKernelRegistry const*> all() const;
  /// Reports every selection and each of its calls from now on to `observer`, which must outlive the selections.
  void observe(KernelObserver& observer) { observer_ = &observer; }
  /// Sets the times that `auto` uses from now on, for every operation.
  void set_timings(KernelTimings const& timings);
  /// Sets Implementation::origin of implementations that are added from now on.
  void set_origin(std::string const& origin);
  std::string const& origin() const { return origin_; }
  /// Throws ConfigError for a choice whose operation is not known, or of which no implementation has that name; the
  /// message names the place of the choice.
  void require_known(KernelChoices const& choices) const;
  std::size_t kept_bytes() const;

 private:
  /// ConfigError: nothing is registered for the operation, or with another interface.
  [[noreturn]] void throw_missing(std::string_view operation) const;
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
