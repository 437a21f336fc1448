#include "measures/validation_commands.hpp"

#include <fstream>
#include <thread>

#include "test.hpp"

namespace heddle {
namespace {

class ValidationCommandsTest : public testing::Test {
 protected:
  /// The results of programs, "NAME: VALUE" or the problem.
  std::vector<std::string> results(std::map<std::string, std::string> const& programs, std::string const& set = "") {
    train_.validate_command = programs;
    ValidationCommands commands(train_, directory_);
    std::vector<CommandInput> inputs;
    for (auto const& [name, program] : programs) {
      inputs.push_back({{name, set, true}, text_});
    }
    commands.add(500, inputs);
    std::vector<std::string> found;
    while (found.size() < programs.size()) {
      for (CommandResult const& result : commands.finished()) {
        EXPECT_EQ(result.step, 500);
        EXPECT_EQ(std::isnan(result.measured.value), !result.problem.empty());
        found.push_back(result.problem.empty()
                            ? fmt::format("{}: {}", result.measured.measure.key(), result.measured.value)
                            : result.problem);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(commands.left(), 0U);
    EXPECT_FALSE(std::filesystem::exists(directory_.parent_path())) << "files are removed";
    return found;
  }
  std::string result(std::string const& program) { return results({{"score", program}}).front(); }

  TemporaryDirectory place_;
  std::filesystem::path directory_ = place_.path() / "validation" / "beside";
  TrainConfig train_;
  std::shared_ptr<SetTranslations const> text_ = std::make_shared<SetTranslations const>(
      SetTranslations{.hypotheses = {"eins", "zwei"}, .references = {"Eins", "Zwei"}, .sources = {"one", "two"}});
};

TEST_F(ValidationCommandsTest, TakeTheNumberThatAProgramPrintsOfTheTexts) {
  EXPECT_EQ(result("echo 0.25; #"), "valid_score: 0.25");
  EXPECT_EQ(result("echo; echo ' -1e2 '; echo loading >&2; #"), "valid_score: -100");
  EXPECT_EQ(result(R"(cat "$1" "$2" "$3" | tr -d '\n' > )" + (place_ / "texts").string() + "; wc -l < $3"),
            "valid_score: 2");
  EXPECT_EQ(read_whole((place_ / "texts").string()), "onetwoEinsZweieinszwei");
  EXPECT_EQ(results({{"score", "echo 1; #"}}, "medical").front(), "valid_score/medical: 1");
}

TEST_F(ValidationCommandsTest, ASlowProgramMissesValidations) {
  train_.validate_command = {{"score", "sleep 100; #"}};
  ValidationCommands commands(train_, directory_);
  for (std::int64_t const step : {500, 600, 700, 800, 900, 1000}) {
    commands.add(step, {{{"score", "", true}, text_}});
  }
  EXPECT_EQ(commands.left(), 5U);
  auto const found = commands.finished();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().step, 600);
  EXPECT_THAT(found.front().problem, HasSubstr("score is slower than validations"));
}

TEST_F(ValidationCommandsTest, EndAndLeaveNoFilesWhereTheyAreGivenUp) {
  train_.validate_command = {{"score", "sleep 100; #"}};
  std::make_unique<ValidationCommands>(train_, directory_)->add(500, {{{"score", "", true}, text_}});
  EXPECT_FALSE(std::filesystem::exists(directory_.parent_path()));
}

TEST_F(ValidationCommandsTest, GetTheFilesWhereTheyNameNone) {
  std::string const script = (place_ / "score.sh").string();
  std::ofstream(script) << "#!/bin/sh\necho $#\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(result(script), "valid_score: 3");
}

TEST_F(ValidationCommandsTest, RunOneAfterAnother) {
  EXPECT_THAT(results({{"a", "sleep 0.2; echo 1; #"}, {"b", "echo 2; #"}, {"c", "exit 3; #"}}),
              ElementsAre("valid_a: 1", "valid_b: 2", "the validation command c ended with 3; it printed nothing"));
}

TEST_F(ValidationCommandsTest, HaveFailuresWithTheirLastLines) {
  EXPECT_EQ(result("echo good; #"),
            "the validation command score printed something else than one line with a number; its last lines:\n  good");
  expect_contains(result("echo 1; echo 2; #"), "something else than one line with a number");
  expect_contains(result("echo nan; #"), "something else than one line with a number");
  expect_contains(result("echo 0.5 x; #"), "something else than one line with a number");
  EXPECT_EQ(result("for i in 1 2 3 4 5 6 7; do echo no model $i >&2; done; exit 1; #"),
            "the validation command score ended with 1; its last lines:\n  no model 3\n  no model 4\n  no model 5\n"
            "  no model 6\n  no model 7");
  std::string const script = (place_ / "score.sh").string();
  std::ofstream(script) << "#!/bin/sh\necho 1\n";
  expect_contains(result(script), "ended with 126; its last lines:");
  expect_contains(result("absent-program"), "ended with 127; its last lines:");
  expect_contains(result("echo 'open"), "; its last lines:");
  EXPECT_EQ(result("kill -9 $$; #"), "the validation command score was ended by signal 9; it printed nothing");
}

TEST_F(ValidationCommandsTest, EndAfterTheirTime) {
  train_.validate_command_seconds = 0.2;
  EXPECT_THAT(results({{"a", "echo waiting; sleep 1000; #"}, {"b", "echo 2; #"}}),
              ElementsAre("the validation command a did not end in 0.2 s; its last lines:\n  waiting", "valid_b: 2"));
}

TEST_F(ValidationCommandsTest, AreNotStartedWhereTheirTextsCannotBeWritten) {
  std::ofstream((place_ / "validation").string()) << "a file";
  train_.validate_command["score"] = "echo 1";
  ValidationCommands commands(train_, directory_);
  commands.add(1, {{{"score", "", true}, text_}});
  auto const found = commands.finished();
  ASSERT_EQ(found.size(), 1U);
  expect_contains(found.front().problem, "the validation command score was not started: ");
}

TEST_F(ValidationCommandsTest, EndWithWhatTheyHaveStarted) {
  std::string const file = (place_ / "pid").string();
  train_.validate_command["score"] = "sleep 1000 & echo $! > " + file + "; wait; #";
  ValidationCommands commands(train_, directory_);
  commands.add(1, {{{"score", "", true}, text_}, {{"score", "a", true}, text_}});
  EXPECT_EQ(commands.left(), 2U);
  std::string text;
  for (int look = 0; look < 1000 && text.find('\n') == std::string::npos; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    text = std::filesystem::exists(file) ? read_whole(file) : "";
  }
  commands.cancel();
  EXPECT_EQ(commands.left(), 0U);
  std::ifstream status("/proc/" + text.substr(0, text.find('\n')) + "/status");
  std::string const state((std::istreambuf_iterator<char>(status)), {});
  EXPECT_TRUE(state.empty() || state.find("State:\tZ") != std::string::npos) << state;
}

}  // namespace
}  // namespace heddle
