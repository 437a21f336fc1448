#include "run/processes/program_answer.hpp"

#include "test.hpp"

namespace heddle {
namespace {

using End = ProgramAnswer::End;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

TEST(ProgramAnswerTest, HasTheOutputAndTheEnd) {
  ProgramAnswer const answer = ask_program("printf 'one\\ntwo\\n'", 10s);
  EXPECT_EQ(answer.end, End::done);
  EXPECT_EQ(answer.output, "one\ntwo\n");
  EXPECT_EQ(ask_program("sh -c 'echo partly; exit 3'", 10s).end, End::failed);
  EXPECT_EQ(ask_program("no-such-program-of-heddle", 10s).end, End::not_found);
  EXPECT_EQ(ask_program("cat", 10s).end, End::done) << "nothing is on the standard input";
}

TEST(ProgramAnswerTest, HasTheErrorsOnlyIfTheCommandAsksForThem) {
  EXPECT_EQ(ask_program("sh -c 'echo wrong >&2'", 10s).output, "");
  EXPECT_EQ(ask_program("sh -c 'echo wrong >&2' 2>&1", 10s).output, "wrong\n");
}

TEST(ProgramAnswerTest, EndsAProgramThatTakesTooLong) {
  EXPECT_EQ(ask_program("sleep 60", 200ms).end, End::late);
  EXPECT_EQ(ask_program("sh -c 'trap \"\" TERM; sleep 60'", 200ms).end, End::late) << "and one that ignores SIGTERM";
}

TEST(ProgramAnswerTest, KeepsTheBeginningOfALongOutput) {
  ProgramAnswer const answer = ask_program("head -c 1000000 /dev/zero", 10s);
  EXPECT_EQ(answer.end, End::done);
  EXPECT_EQ(answer.output.size(), 65'536U);
}

}  // namespace
}  // namespace heddle
